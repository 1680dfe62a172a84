"""Writers: models that word an answer from passages which the library found."""

"""Training, measurements of the paper and fitting: not installed; imports the product, which never imports it."""

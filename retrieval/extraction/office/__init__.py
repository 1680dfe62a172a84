"""Files of office programs: packed XML, spreadsheets, rich text."""

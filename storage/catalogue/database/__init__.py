"""The database under the repositories: connection, tables, conversion of rows, failures, upgrades."""

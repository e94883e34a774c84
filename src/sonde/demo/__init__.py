"""What `sonde demo` trains: a small character transformer on text that ships with the package."""

"""How answers leave: files with hashed names, headers, compression, errors, the listener."""

"""What servers are made of: connections, access, live pages, HTML and files. It knows no snapshot."""

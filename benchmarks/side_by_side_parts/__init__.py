"""What the side by side run is made of: a driver, a node, the programs, and what is asked of them."""

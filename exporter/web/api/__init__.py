"""What programs ask for: metrics, the snapshot and its twins, health, and the description of it all."""

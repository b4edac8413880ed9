"""Resource claims (DRA), by the driver that hands the devices out."""

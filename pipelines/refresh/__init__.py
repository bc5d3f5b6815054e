"""How often pages change, and when each is to be read again: change rates and schedules. Pure."""

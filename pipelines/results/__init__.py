"""How importance, schedules, orders and rejects leave: as columns, files and topics."""

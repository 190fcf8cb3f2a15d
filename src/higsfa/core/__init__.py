"""The mathematics: frozen records and pure functions on numpy arrays."""

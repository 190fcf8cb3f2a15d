"""How good a method is: metrics, protocols, and the record of results."""

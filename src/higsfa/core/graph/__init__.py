"""Training graphs: labels, groups, edges, and graphs made of them."""

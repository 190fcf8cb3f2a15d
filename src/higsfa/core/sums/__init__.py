"""Sums over samples: how samples are cut, weighted and added up, and the covariances that sums become."""

"""Which mechanism with which settings: tried on simulated datasets, all of it public."""

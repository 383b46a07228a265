"""From a release to a posterior: post-processing, which costs no privacy."""

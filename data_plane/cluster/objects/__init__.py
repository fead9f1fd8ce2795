"""The objects that we put into clusters, as plain dictionaries. Pure: nothing here talks to a cluster."""

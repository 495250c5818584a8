"""Read labelled datasets into arrays. One module per dataset."""

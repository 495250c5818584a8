"""Images replaced by the features of a pre-trained torchvision network, computed once and kept in a cache."""

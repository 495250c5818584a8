"""Replace images by the features of a pre-trained torchvision network. Features are computed once and cached."""

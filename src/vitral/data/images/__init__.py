"""One image: limits, decoding, preprocessing, augmentation."""

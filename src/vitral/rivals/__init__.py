"""What a ViT is compared with: the small CNN, ResNets, the hybrid. Same interface, same tape."""

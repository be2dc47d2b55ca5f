"""What a run is: asked, settled, and the folder that holds it. Training writes it; everything after training reads it."""

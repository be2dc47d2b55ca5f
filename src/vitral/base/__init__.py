"""What every other part stands on: errors, files, progress, devices, pictures, origins."""

"""The networks: encoders, the task network, the model that holds them, and its file."""

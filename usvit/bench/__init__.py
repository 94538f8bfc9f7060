"""Speed and memory: images/s of a network, by the papers' protocols, each measurement in a process of its own."""

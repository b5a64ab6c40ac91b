"""Run all benchmarks: `make bench`."""

from benchmarks import soft_ari, training_step

if __name__ == "__main__":
    training_step.main()
    soft_ari.main()

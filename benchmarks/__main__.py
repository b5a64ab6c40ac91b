"""Run all benchmarks: `make bench`."""

from benchmarks import images, imports, soft_ari, tables, training_step

if __name__ == "__main__":
    training_step.main()
    soft_ari.main()
    tables.main()
    images.main()
    imports.main()

"""`python -m opicflow.pipelines.cli`: the command line."""

from opicflow.pipelines.cli.start import main

if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m opicflow.pipelines.cli`: the command line."""

from opicflow.pipelines.cli.start import main

raise SystemExit(main())

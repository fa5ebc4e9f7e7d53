"""`python -m ralm_engine.cli`, for where the script is not on the path."""

import sys

from ralm_engine.cli.program import main

sys.exit(main())

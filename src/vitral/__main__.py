"""`python -m vitral`."""

import sys

from vitral.cli import main

sys.exit(main())

# SPDX-License-Identifier: MIT
"""Settings: where they come from (``load``) and what each may be (``schema``)."""

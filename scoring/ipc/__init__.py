# SPDX-License-Identifier: MIT
"""What judge and worker share: messages, memory, the commit chain. Standard library and torch only."""

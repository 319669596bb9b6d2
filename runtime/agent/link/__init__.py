# SPDX-License-Identifier: Apache-2.0
"""The stream to the launcher and the loop that waits for it: the lowest floor, on the standard library alone."""

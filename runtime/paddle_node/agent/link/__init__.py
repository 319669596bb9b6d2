# SPDX-License-Identifier: Apache-2.0
"""The stream to the launcher, and the loop that waits for it and all else; the lowest floor."""

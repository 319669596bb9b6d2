# SPDX-License-Identifier: Apache-2.0
"""What a killed parameter server and a checkpoint cost, and whether anything is lost."""

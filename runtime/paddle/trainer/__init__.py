# SPDX-License-Identifier: Apache-2.0
"""`paddle train` at work: configuration files, data providers, passes, and what is saved after each."""

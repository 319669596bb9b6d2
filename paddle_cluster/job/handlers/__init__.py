# SPDX-License-Identifier: Apache-2.0
"""The handlers of a job's events, with one module per family of events."""

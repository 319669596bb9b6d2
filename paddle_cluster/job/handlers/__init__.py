# SPDX-License-Identifier: Apache-2.0
"""The handlers of a job's events, one family of events per module."""

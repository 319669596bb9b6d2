# SPDX-License-Identifier: Apache-2.0
"""The handlers of a job's events, a family of events a module; part of the floor of `job`."""

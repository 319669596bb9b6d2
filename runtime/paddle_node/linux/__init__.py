# SPDX-License-Identifier: Apache-2.0
"""What the Linux kernel is asked and told: each of it in one place of the project; the lowest floor"""

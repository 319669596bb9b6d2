# SPDX-License-Identifier: Apache-2.0
"""All uses of Linux interfaces, each in one place of the project; the lowest floor"""

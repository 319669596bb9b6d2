# SPDX-License-Identifier: Apache-2.0
"""The implementation of `paddle train`: configuration files, data providers, passes, and saved parameters."""

from paddle import second_names

second_names.refuse(
    __name__,
    {
        "PyDataProviderWrapper": "paddle.trainer.PyDataProvider2",
        "config_parser_extension": "define_py_data_sources2 of paddle.trainer_config_helpers",
        "recurrent_units": "lstmemory_unit and gru_unit of paddle.trainer_config_helpers in a recurrent_group",
    },
)

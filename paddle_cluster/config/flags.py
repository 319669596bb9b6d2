# SPDX-License-Identifier: Apache-2.0
"""The flag names that the launcher knows, and which processes each flag is passed to.

The runtime has the same names in paddle.flags; a contract test compares the two.
"""

from __future__ import annotations

_COMMUNICATION = """
    port ports_num ports_num_for_sparse nics rdma_tcp pservers trainer_id num_gradient_servers
    pserver_num_threads log_period_server loadsave_parameters_in_pserver async_lagged_ratio_min
    async_lagged_ratio_default small_messages sock_send_buf_size sock_recv_buf_size sock_listen_queue_size
    parallel_thread_num check_sparse_distribution_in_pserver show_check_sparse_distribution_log
    check_sparse_distribution_batches check_sparse_distribution_ratio
    check_sparse_distribution_unbalance_degree comment start_pserver
"""

_TRAINER = """
    job config config_args use_gpu gpu_id trainer_count local num_passes log_period dot_period saving_period
    saving_period_by_batches save_dir start_pass init_model_path load_missing_parameter_strategy test_period
    average_test_period test_pass test_wait model_list predict_output_dir predict_file feat_file
    distribute_test with_cost save_only_one show_parameter_stats_period show_layer_stat use_old_updater seed
    thread_local_rand_use_global_seed log_clipping log_error_clipping checkgrad_eps enable_grad_share
    grad_share_block_num enable_parallel_vector parallel_nn beam_size rnn_use_batch prev_batch_state
    diy_beam_search_prob_so allow_only_one_model_on_one_gpu cudnn_dir cuda_dir warpctc_dir lapack_dir nccl_dir
    cudnn_conv_workspace_limit_in_mb use_mkldnn use_nnpack python_path python_bin version
"""

# Documented in the manuals, though no release defined them all; accepted so that old command lines keep working.
_DOCUMENTED_ONLY = """
    parameter_block_size parameter_block_size_for_sparse async_count log_barrier_abstract log_barrier_show_log
    log_barrier_lowest_nodes memory_threshold_on_load_data
"""

INIT_FLAGS: frozenset[str] = frozenset((_COMMUNICATION + _TRAINER + _DOCUMENTED_ONLY).split())
"""Flags of paddle.init: each one given on the command line becomes PADDLE_INIT_<NAME> of the trainers."""

PSERVER_FLAGS: frozenset[str] = frozenset(
    [
        "port",
        "ports_num",
        "ports_num_for_sparse",
        "num_gradient_servers",
        "nics",
        "comment",
        "wire",
        "bind",
        "port_tries",
        "barrier_timeout_s",
        "state_dir",
        "checkpoint_dir",
        "checkpoint_period",
        "checkpoint_keep",
        "resume",
        "rdma_tcp",
        "pserver_num_threads",
        "log_period_server",
        "small_messages",
        "sock_send_buf_size",
        "sock_recv_buf_size",
        "sock_listen_queue_size",
        "async_lagged_ratio_min",
        "async_lagged_ratio_default",
        "loadsave_parameters_in_pserver",
        "check_sparse_distribution_in_pserver",
        "show_check_sparse_distribution_log",
        "check_sparse_distribution_batches",
        "check_sparse_distribution_ratio",
        "check_sparse_distribution_unbalance_degree",
    ]
)
"""Flags of `paddle pserver`."""

LAUNCHER_FLAGS: frozenset[str] = frozenset({"trainer_id", "pservers", "num_gradient_servers"})
"""Flags whose values follow from the plan, one by one or for each process: nobody else may give them."""

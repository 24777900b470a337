"""The only folder that uses private parts of PyTorch, or parts that differ between 2.6 and the newest release.

The rest of the package uses `compat.NAME`; the imports below say where each is defined.
"""

# flake8: noqa: F401
from .addresses import addresses_of_fakes
from .autograd import (
    ENGINE,
    accumulation_hooks,
    as_written,
    autograd_nodes,
    backward_within,
    gradient_hooks,
    has_reentrant_checkpoint,
    hook_tables,
    hooks_of,
    leaves,
    modes_in_backward,
    node_sequence_number,
    sequence_number,
    version_kept,
)
from .collectives import (
    all_gather,
    all_reduce,
    broadcast,
    forget_group,
    group_ranks,
    groups_of_this_rank,
    launch_all_gather,
    launch_all_reduce,
    launch_all_to_all,
    launch_broadcast,
    launch_reduce_scatter,
    name_group,
    new_group,
    reduce_scatter,
    root_mesh,
    wait,
)
from .failures import (
    asks_about_nan,
    asks_whether_averaged,
    branches_in_script,
    data_dependent_errors,
    is_about_nested_tensors,
    is_mixed_up,
    meets_infinity,
    takes_no_symbol,
    unsupported_errors,
    wants_numbers,
)
from .fakes import (
    CORRECTED,
    constant_of,
    fake_with_value,
    fakes_of,
    is_fake,
    new_fake_mode,
    python_twins,
    real,
    value_beside,
    values_in,
)
from .handles import Handle, Reductions, can_box_work, unboxed_group
from .libraries import composites_in_parts, is_wrapper, python_body
from .masks import causal_biases, is_block_mask, split_block_mask
from .math_functions import math_keeps_symbols
from .nested import (
    drop_lengths,
    from_padded,
    is_jagged,
    jagged,
    lengths_without_numbers,
    longest,
    ragged_axis,
    shortest,
)
from .nodes import (
    bound_lengths,
    bound_symbols,
    drop_idle,
    is_answered,
    is_collective,
    is_exchange,
    is_launch,
    is_random,
    is_set,
    results,
    written,
    written_by,
)
from .parameters import becomes, named_buffers, named_parameters
from .sizes import (
    Dimension,
    SymbolFacts,
    assumed_at,
    assumptions,
    bounds,
    decided,
    decided_at,
    equal,
    example,
    expression,
    fake_with_symbols,
    formats,
    found_in,
    guards,
    hint,
    is_of_data,
    numbers_as_in_python,
    settled,
    settled_at,
    settled_symbol_at,
    settled_floats,
    symbol_facts,
    taken,
)
from .tracing import (
    as_recorded,
    casts_keep_strides,
    data_assigned_by_copies,
    eager_everywhere,
    observe_nodes,
    torch_annotations,
    trace,
    with_eager_checkpoints,
    without_batch_limits,
    without_notices,
    without_onednn,
)
from .training import (
    as_compiled,
    averages_of_all_batches,
    casts_in_forward,
    hooks_around,
    is_made_of_others,
    kinds_of_scalers,
    memory_of,
    scalers,
    swapped,
    within_hooks,
)
from .views import views_ask_of_sharded_axes
from .wrappers import (
    fsdp_groups,
    fsdp_hooks_at_rest,
    fsdp_methods,
    fsdp_units,
    fsdp_units_beside,
    has_own_grad_dtype,
    spreads_states,
    syncs_buffers,
    unknown_wrapper,
)

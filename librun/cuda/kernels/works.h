// The kernels of elementwise work (librun/work).
#pragma once

#include "librun/cuda/kernels/block.h"
#include "librun/work/classes.h"
#include "librun/work/distances.h"
#include "librun/work/draw.h"
#include "librun/work/fourier.h"
#include "librun/work/grid.h"
#include "librun/work/margin.h"
#include "librun/work/move.h"
#include "librun/work/pair.h"
#include "librun/work/pool.h"
#include "librun/work/resample.h"
#include "librun/work/scaled.h"
#include "librun/work/search.h"
#include "librun/work/segment_reduce.h"
#include "librun/work/spread.h"
#include "librun/work/update.h"
#include "librun/work/windows.h"

namespace sg::cuda {

#define SG_WORK(name, ...)                                                                                       \
  using name##_args = EachArgs<__VA_ARGS__>;                                                                     \
  SG_KERNEL(name, name##_args) {                                                                                 \
    block.each([&](int lane) {                                                                                   \
      for (int64_t i = block.index() * kLanes + lane; i < args.count; i += block.count() * kLanes) args.work(i); \
    });                                                                                                          \
  }

SG_WORK(work_resample, work::Resample)
SG_WORK(work_pick, work::Pick)
SG_WORK(work_round_to_byte, work::RoundToByte)
SG_WORK(work_max_pool, work::MaxPool<double>)
SG_WORK(work_max_pool_whole, work::MaxPool<int64_t>)
SG_WORK(work_avg_pool, work::AvgPool<double>)
SG_WORK(work_avg_pool_whole, work::AvgPool<int64_t>)
SG_WORK(work_pool_backward, work::PoolBackward)
SG_WORK(work_to_places, work::ToPlaces)
SG_WORK(work_check_range, work::CheckRange)
SG_WORK(work_squared_error, work::PairLoss<work::SquaredError>)
SG_WORK(work_squared_error_slope, work::PairSlope<work::SquaredError>)
SG_WORK(work_smooth_l1, work::PairLoss<work::SmoothL1>)
SG_WORK(work_smooth_l1_slope, work::PairSlope<work::SmoothL1>)
SG_WORK(work_huber, work::PairLoss<work::Huber>)
SG_WORK(work_huber_slope, work::PairSlope<work::Huber>)
SG_WORK(work_soft_margin, work::PairLoss<work::SoftMargin>)
SG_WORK(work_soft_margin_slope, work::PairSlope<work::SoftMargin>)
SG_WORK(work_binary_cross_entropy, work::PairLoss<work::BinaryCrossEntropy>)
SG_WORK(work_binary_cross_entropy_slope, work::PairSlope<work::BinaryCrossEntropy>)
SG_WORK(work_bce_with_logits, work::CrossEntropyOfLogits<float>)
SG_WORK(work_bce_with_logits_f64, work::CrossEntropyOfLogits<double>)
SG_WORK(work_check_probability, work::CheckProbability)
SG_WORK(work_divide, work::Divide)
SG_WORK(work_prelu_backward, work::PreluBackward)
SG_WORK(work_glu, work::Glu<float>)
SG_WORK(work_glu_f64, work::Glu<double>)
SG_WORK(work_glu_backward, work::GluBackward<float>)
SG_WORK(work_glu_backward_f64, work::GluBackward<double>)
SG_WORK(work_scale_sums, work::ScaleSums<float>)
SG_WORK(work_scale_sums_f64, work::ScaleSums<double>)
SG_WORK(work_scale_blocks, work::ScaleBlocks<float>)
SG_WORK(work_scale_blocks_f64, work::ScaleBlocks<double>)
SG_WORK(work_unravel, work::Unravel)
SG_WORK(work_move_elements, work::MoveElements)
SG_WORK(work_search, work::Search<double>)
SG_WORK(work_search_whole, work::Search<int64_t>)
SG_WORK(work_begins_run, work::BeginsRun<double>)
SG_WORK(work_begins_run_whole, work::BeginsRun<int64_t>)
SG_WORK(work_run_of, work::RunOf)
SG_WORK(work_run_length, work::RunLength)
SG_WORK(work_count_equal, work::CountEqual)
SG_WORK(work_one_hot, work::OneHot)
SG_WORK(work_check_segments, work::CheckSegments)
SG_WORK(work_join_segment, work::JoinSegment)
SG_WORK(work_segment_slope, work::SegmentSlope)
SG_WORK(work_sample, work::grid::Sample<float>)
SG_WORK(work_sample_f64, work::grid::Sample<double>)
SG_WORK(work_grid_slope, work::grid::GridSlope<float>)
SG_WORK(work_grid_slope_f64, work::grid::GridSlope<double>)
SG_WORK(work_plane_slope, work::grid::PlaneSlope<float>)
SG_WORK(work_plane_slope_f64, work::grid::PlaneSlope<double>)
SG_WORK(work_sgd, work::Update<work::Sgd<float>>)
SG_WORK(work_sgd_f64, work::Update<work::Sgd<double>>)
SG_WORK(work_adamw, work::Update<work::AdamW<float>>)
SG_WORK(work_adamw_f64, work::Update<work::AdamW<double>>)
SG_WORK(work_sgd_many, work::UpdateMany<work::Sgd<float>>)
SG_WORK(work_sgd_many_f64, work::UpdateMany<work::Sgd<double>>)
SG_WORK(work_adamw_many, work::UpdateMany<work::AdamW<float>>)
SG_WORK(work_adamw_many_f64, work::UpdateMany<work::AdamW<double>>)
SG_WORK(work_gather_columns_1, work::GatherColumns<uint8_t>)
SG_WORK(work_gather_columns_2, work::GatherColumns<uint16_t>)
SG_WORK(work_gather_columns_4, work::GatherColumns<uint32_t>)
SG_WORK(work_gather_columns_8, work::GatherColumns<uint64_t>)
SG_WORK(work_gather_columns_16, work::GatherColumns<work::Bytes16>)
SG_WORK(work_add_columns, work::AddColumns<double>)
SG_WORK(work_add_columns_whole, work::AddColumns<int64_t>)
SG_WORK(work_add_windows, work::AddWindows)
SG_WORK(work_cross_distance, work::CrossDistance)
SG_WORK(work_cross_distance_slope, work::CrossDistanceSlope)
SG_WORK(work_pair_distances, work::PairDistances)
SG_WORK(work_pair_distance_slope, work::PairDistanceSlope)
SG_WORK(work_row_norm, work::RowNorm)
SG_WORK(work_scale_rows, work::ScaleRows)
SG_WORK(work_row_slope, work::RowSlope)
SG_WORK(work_normed_slope, work::NormedSlope)
SG_WORK(work_divide_each, work::DivideEach)
SG_WORK(work_soft_cross_entropy, work::SoftCrossEntropy)
SG_WORK(work_hard_cross_entropy, work::HardCrossEntropy)
SG_WORK(work_spread, work::Spread)
SG_WORK(work_is_in, work::IsIn<double>)
SG_WORK(work_is_in_whole, work::IsIn<int64_t>)
SG_WORK(work_rrelu_backward, work::RreluBackward)
SG_WORK(work_draw_key, work::DrawKey)
SG_WORK(work_multilabel_margin, work::MultilabelMargin)
SG_WORK(work_multilabel_margin_slope, work::MultilabelMarginSlope)
SG_WORK(work_multi_margin_slope, work::MultiMarginSlope)
SG_WORK(work_fourier_stage, work::FourierStage)
SG_WORK(work_turn_lines, work::TurnLines)
SG_WORK(work_mirror_lines, work::MirrorLines)
SG_WORK(work_scale_numbers, work::ScaleNumbers)
SG_WORK(work_move_1, work::MoveWords<uint8_t>)
SG_WORK(work_move_2, work::MoveWords<uint16_t>)
SG_WORK(work_move_4, work::MoveWords<uint32_t>)
SG_WORK(work_move_8, work::MoveWords<uint64_t>)
SG_WORK(work_move_16, work::MoveWords<work::Bytes16>)

#undef SG_WORK

}  // namespace sg::cuda

"""The tests to run before each commit: for every room of the package some that are fast and would notice most faults.

`make quick` runs style, the order of the rooms and these; `python tests/quick.py distance bank` those of some rooms.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

# A room, and tests that use it: whole files, or single tests of slower ones.
QUICK = {
    "__init__": [
        "test_public_names.py::test_all_lists_what_is_exported",
        "test_rooms.py::test_the_package_keeps_its_contracts",
    ],
    "_common": [
        "test_hostile_files.py::test_a_folder_is_no_file",
        "test_hostile_files.py::test_deep_json_is_refused_by_every_reader",
        "test_hostile_files.py::test_json_in_memory_is_what_it_may_be",
        "test_scale_storage.py::test_secrets_of_a_url_are_not_shown",
    ],
    "_kernels": [
        "test_kernels.py::test_uniforms_are_the_same_compiled_or_not",
        "test_kernels.py::test_row_distances_are_euclidean",
        "test_kernels.py::test_both_modules_offer_the_same_functions",
    ],
    "audit": [
        "test_audit.py::test_laws_are_their_sums",
        "test_audit.py::test_the_lower_bound_at_the_edges",
        "test_audit.py::test_integers_are_read_off_the_shipped_code",
        "test_audit.py::test_neighbours_are_told_in_exact_arithmetic",
    ],
    "bank": [
        "test_golden.py::test_a_bank_opens_and_holds_what_it_held",
        "test_bank.py::test_a_bank_reads_back_as_it_was_made",
        "test_bank.py::test_an_edited_manifest_is_refused",
        "test_bank.py::test_entries_beyond_the_bounds_are_refused",
        "test_single.py::test_rounding_leaves_no_row_beyond_its_bounds",
    ],
    "cli": [
        "test_public_names.py::test_names_and_command_line_are_what_they_were",
        "test_cli.py::test_help_lists_the_commands",
    ],
    "demo": ["test_public_names.py::test_examples_in_docstrings_run"],
    "distance": [
        "test_golden.py::test_the_distances_of_a_bank_to_records_are_what_they_were",
        "test_distances.py::test_paired_distances_are_the_mean_of_clipped_distances",
        "test_distances.py::test_a_distance_survives_json",
        "test_distances.py::test_what_cannot_be_is_refused_by_name",
        "test_network.py::test_whatever_comes_lies_in_the_ball",
        "test_record_features.py::test_whatever_the_function_says_the_clip_holds",
        "test_sensitivity.py::test_nine_moments_of_a_regression_move_by_9_375_together",
        "test_lattice.py::test_some_records_come_close_to_the_diameter_of_usual_settings",
        "test_chords.py::test_where_the_work_ends_a_bound_stands_for_the_rest",
    ],
    "errors": ["test_ledger.py::test_errors_are_ours"],
    "evidence": [
        "test_signatures.py::test_every_number_and_every_word_counts",
        "test_signatures.py::test_what_another_key_signed_is_somebody_elses",
        "test_evidence.py::test_a_private_size_is_on_no_page",
    ],
    "experiments": [
        "test_guarantee.py::test_pure_noise_spends_no_delta",
        "test_public_release.py::test_it_says_everywhere_that_it_protects_nobody",
    ],
    "inference": [
        "test_golden.py::test_a_release_loads_and_gives_its_posterior",
        "test_golden.py::test_weights_make_any_number_of_draws",
        "test_regression_adjustment.py::test_stretching_goes_back_and_stays_inside",
        "test_local.py::test_coordinates_go_forth_and_back_and_make_the_prior_normal",
        "test_local.py::test_it_never_simulates_more_than_allowed_and_goes_by_the_bank_where_that_is_little",
    ],
    "learning": [
        "test_learning.py::test_combinations_of_cases_have_their_exact_diameter",
        "test_record_network.py::test_noise_is_what_a_release_would_carry",
        "test_record_network.py::test_a_bank_that_keeps_records_is_encoded_anew",
    ],
    "ledger": [
        "test_golden.py::test_the_ledger_verifies_and_shows_its_budgets",
        "test_golden.py::test_the_ledger_goes_on",
        "test_ledger.py::test_ten_tenths_make_one",
        "test_ledger.py::test_a_request_is_answered_once",
        "test_ledger_trust.py::test_history_close_and_lower",
        "test_reservations.py::test_the_rules_of_requests_hold_even_for_a_chain_signed_anew",
        "test_top_up.py::test_the_rules_know_a_chain_that_branches_even_if_it_was_signed_anew",
        "test_accounting.py::test_a_charge_of_the_wrong_kind_never_fits",
        "test_accounting.py::test_rho_is_what_the_total_is_worth_in_fifty_digits_and_no_more",
    ],
    "mechanisms": [
        "test_composition.py::test_the_composed_delta_is_the_theorems",
        "test_sparse_vector.py::test_a_scan_refuses_what_does_not_fit",
        "test_sparse_vector.py::test_a_tenth_is_a_tenth",
        "test_nearest.py::test_impossible_settings_are_named",
        "test_private_summary.py::test_all_entries_can_cross_a_grid_line_at_once",
        "test_rounded_gaussian.py::test_delta_is_the_profile_to_fifty_digits_and_never_below_it",
    ],
    "models": ["test_epidemic.py", "test_model.py", "test_patients.py"],
    "owner": [
        "test_owner.py::test_a_release_from_end_to_end",
        "test_owner.py::test_the_same_request_returns_the_same_bytes_and_costs_once",
        "test_owner.py::TestRefusals::test_budget",
        "test_owner.py::TestRefusals::test_other_records",
        "test_owner.py::TestRefusals::test_seeded_noise_and_foreign_mechanisms",
        "test_owner.py::test_a_crash_after_the_charge_burns_the_request",
        "test_top_up.py::test_a_chain_costs_what_its_last_release_costs",
        "test_top_up.py::test_a_release_is_topped_up_once",
    ],
    "paper": [
        "test_paper.py::test_runs_without_a_stop_against_a_loop",
        "test_paper.py::test_boxes_are_those_of_matplotlib",
    ],
    "planning": [
        "test_calibration_check.py::test_the_tail_of_a_sample_is_that_of_its_unlikeliest_count",
        "test_calibration_check.py::test_a_dataset_never_meets_its_own_draw",
        "test_golden.py::test_a_plan_loads",
        "test_plan.py::test_what_is_not_a_plan",
        "test_plan.py::test_plans_of_the_first_format_are_read",
    ],
    "plots": ["test_notebook.py::test_figures_show_themselves"],
    "privacy": [
        "test_guarantee.py::test_no_test_has_more_power_than_the_guarantee_allows",
        "test_guarantee.py::test_a_basis_in_files_of_both_formats",
    ],
    "releases": [
        "test_guarantee.py::test_a_release_of_format_1_opens_and_stays_what_it_was",
        "test_noisy_summary.py::test_refusals",
    ],
    "reporting": [
        "test_report.py::test_the_odds_are_those_of_the_definition",
        "test_report.py::test_a_private_size_is_on_no_page",
        "test_report.py::test_every_text_is_there_and_every_text_is_used",
    ],
    "sampling": [
        "test_noise.py::test_digits_are_put_where_they_belong",
        "test_noise.py::test_a_seed_repeats_and_another_does_not",
        "test_noise.py::test_laplace_and_geometric_have_their_signs",
        "test_noise.py::test_bad_scales_are_refused",
        "test_top_up_noise.py::test_the_law_is_that_of_the_smaller_noise_given_the_old_in_fractions",
        "test_rounded_gaussian.py::test_draws_are_those_of_the_slow_literal_sampler",
    ],
    "service": [
        "test_client.py::test_a_lost_answer_asks_nothing_twice",
        "test_client.py::test_no_key_is_shown",
        "test_notices.py::test_steps_whose_time_is_private_are_told_to_nobody",
        "test_accounts.py::test_what_is_not_this_key_opens_nothing",
        "test_accounts.py::test_a_scope_takes_roles_away",
        "test_accounts.py::test_everything_is_in_the_trail_and_no_secret_is_anywhere",
        "test_uploads.py::test_names_follow_one_pattern",
        "test_uploads.py::test_sizes_are_kept",
        "test_server.py::test_settings_that_cannot_be_are_named",
        "test_server.py::test_rates_fill_evenly",
        "test_desk.py::test_a_request_from_a_draft_to_its_bytes",
        "test_desk.py::test_votes_are_blind_until_it_is_decided",
        "test_desk.py::test_a_slot_depends_on_public_sizes_alone",
    ],
    "simulation": [
        "test_bank.py::test_summaries_are_those_of_the_simulated_data",
        "test_scale_executors.py::test_things_that_are_no_executor_are_named",
        "test_scale_programs.py::test_commands_are_checked",
        "test_tensors.py",
        "test_jax.py::test_models_in_jax_load_nothing_before_they_are_used",
    ],
    "theory": ["test_theory.py::test_special_cases_are_the_papers_forms", "test_theory.py::test_extremes"],
}
DOCUMENTS = ["test_references.py"]


def chosen(rooms: Sequence[str] = ()) -> list[str]:
    """Return the tests of some rooms, or of all with the documents, each once."""
    tests = [test for room in rooms or QUICK for test in QUICK[room]] + ([] if rooms else DOCUMENTS)
    return [str(Path(__file__).parent / test) for test in dict.fromkeys(tests)]


if __name__ == "__main__":
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    rooms = [word for word in sys.argv[1:] if not word.startswith("-")]
    sys.exit(pytest.main([*chosen(rooms), *options]))

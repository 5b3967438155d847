"""The tests that can't run on Windows, or not under Wine, each with its reason."""

from __future__ import annotations

import sys

RIGHTS = "modes of files are POSIX's; tests.proofs.windows looks at what ACLs allow"
OPEN = "its fault can't happen: what is open can be neither renamed nor removed on Windows"
PATHS = "it is about paths or file names as only POSIX has them"
SYSTEMD = (
    "it runs programs of POSIX in the place of the system's, or is about systemd or Litestream"
)
TERMINAL = "it needs a pseudo terminal, a named pipe, or /proc"
SIGNALS = "it sends a signal that Windows lacks"
LIMITS = "it sets a limit of POSIX, such as one of open files, or reads a socket as Linux has it"
USERS = "it is about sudo, or users by number"
ZONES = "time.tzset is POSIX's"
WORDS = "the system's words for the fault are others"
PROGRAMS = (
    "it needs git, openssl, the command flask, or a shell in the place of a browser, which this "
    "Windows lacks"
)
WINE = "Wine has no SIO_TCP_INFO, and its sockets buffer in other amounts"
CLOCK = "the clock has steps of 15 ms: what takes less takes nothing"

_BY_REASON = {
    RIGHTS: """
        test_the_journal_is_private_to_its_owner test_an_unreadable_journal_is_set_aside
        test_a_backup_is_complete_private_to_its_owner_and_has_a_checksum_beside_it
        test_a_backup_of_any_name_is_for_its_owner_only_with_nothing_beside_it
        test_a_new_database_is_empty_for_its_owner_only_and_has_an_id_of_its_own
        test_an_upgrade_keeps_the_data_and_a_checked_copy_for_its_owner
        test_unfinished_work_is_private_and_gone_afterwards
        test_a_private_file_is_never_made_through_a_link
        test_a_database_that_others_can_read_is_made_private
        test_the_folder_and_its_files_are_for_their_owner_only
        test_an_export_overwrites_a_file_only_if_asked_and_is_private_to_its_owner
        test_a_backup_overwrites_files_only_if_asked_and_never_the_database
    """,
    OPEN: """
        test_a_last_use_that_cannot_be_written_is_written_later_and_fails_no_request
        test_a_ban_that_cannot_be_written_is_kept_in_memory
        test_a_ban_that_could_not_be_written_is_written_later_and_can_be_lifted
        test_evicted_addresses_take_no_memory_while_the_journal_cannot_be_written
        test_a_journal_that_is_missing_or_fails_is_rewritten_completely
        test_requests_are_served_while_the_journal_cannot_be_written
        test_a_database_that_is_away_holds_nobody_back
        test_a_connection_is_never_opened_to_a_file_that_replaced_the_database
        test_a_change_that_waited_for_a_restore_is_not_made_in_the_replaced_database
        test_a_fault_is_logged_once_with_its_cause_and_its_end
        test_a_missing_database_rejects_every_request_until_it_is_back
        test_a_request_whose_key_cannot_be_looked_up_is_not_counted
        test_requests_without_a_well_formed_key_need_no_database
        test_readiness_fails_with_the_same_error_but_without_the_api_headers
        test_a_missing_database_is_reported_and_other_metrics_stay
        test_an_unavailable_database_is_logged_once_and_waited_for
        test_so_does_an_internal_error_or_an_outage
        test_readers_that_stall_occupy_no_thread_and_a_removed_file_is_still_sent
    """,
    PATHS: """
        test_the_printed_command_runs_the_way_the_service_was_started
        test_a_hint_shows_a_command_that_works_the_way_the_program_was_started
        test_an_installed_package_keeps_its_data_in_the_users_data_folder
        test_a_user_without_a_home_has_to_name_a_folder
        test_a_file_that_cannot_be_written_is_rejected
        test_a_missing_file_is_reported_in_one_line
        test_one_file_through_two_folders_has_one_service
        test_the_help_of_a_module_that_is_run_shows_the_name_that_was_typed
        test_programs_started_by_the_executable_find_the_systems_libraries
    """,
    SYSTEMD: """
        test_systemd_gets_a_unit_for_this_program_and_folder_and_starts_it
        test_a_service_that_can_only_start_at_login_is_reported
        test_installing_and_removing_twice_does_no_harm
        test_without_systemd_nothing_is_written_and_cron_is_named
        test_a_program_that_hangs_is_given_up_after_a_time_limit
        test_a_programs_children_are_not_waited_for
        test_launchd_gets_an_agent_for_this_program_and_folder
        test_an_agent_is_replaced_once_the_previous_one_has_ended
        test_if_launchd_refuses_nothing_is_left_behind_and_the_message_says_what_to_do
        test_a_folder_that_macos_may_deny_the_service_is_reported
        test_a_copy_lags_by_the_time_since_litestream_last_confirmed_it
        test_systemd_is_told_that_it_serves_that_its_loop_runs_and_that_it_stops
        test_the_units_commands_have_its_user_program_and_folder
        test_litestream_copies_the_units_database_as_its_user_and_starts_and_stops_with_it
        test_windows_gets_a_task_for_this_program_and_folder_and_runs_it
        test_without_administrator_rights_the_task_starts_at_sign_in
        test_a_folder_with_a_percent_sign_is_rejected_as_a_task_cannot_have_one
    """,
    TERMINAL: """
        test_an_export_is_a_snapshot
        test_a_stalled_pipe_does_not_keep_the_write_ahead_log_from_being_reused
        test_an_export_shows_its_progress_on_the_terminal
        test_an_import_shows_its_progress_on_the_terminal
        test_an_import_killed_while_checking_stores_nothing_and_the_next_one_cleans_up
        test_an_interrupted_import_removes_its_temporary_files
        test_a_long_answer_of_http_1_0_is_in_a_file_too
    """,
    SIGNALS: """
        test_an_interrupted_upgrade_leaves_the_database_as_it_was[is-killed]
        test_a_service_whose_log_goes_to_no_terminal_ignores_sighup
    """,
    LIMITS: """
        test_while_no_connection_can_be_accepted_the_loop_rests_and_says_so_once
        test_an_answer_whose_file_finds_no_room_any_more_breaks_off_at_once
        test_a_log_that_nobody_reads_stops_neither_requests_nor_a_stop
        test_lines_that_find_no_room_are_counted_and_reported_when_the_log_is_read_again
    """,
    USERS: """
        test_the_caller_of_sudo_is_listed_with_the_user_acted_as
        test_a_user_without_a_name_is_listed_by_number
    """,
    ZONES: "test_the_time_zone_of_the_machine_does_not_matter",
    WORDS: """
        test_a_file_that_cannot_be_restored_is_reported_with_the_reason
        test_a_start_that_cannot_work_says_in_one_line_how_to_fix_it_and_changes_no_database[a-folder-below-a-file]
    """,
    PROGRAMS: """
        test_a_first_start_makes_one_key_prints_it_once_and_opens_the_console
        test_a_later_start_makes_no_key_and_only_opens_the_console
        test_the_demo_is_opened_with_its_own_key
        test_a_second_start_opens_the_console_of_the_first
        test_an_unopened_page_is_removed_by_a_stop_or_the_next_start
        test_if_no_browser_opens_the_service_runs_and_logs_its_address
        test_without_a_home_the_page_is_in_the_instance_folder
        test_the_command_that_a_start_prints_issues_a_key_for_that_service
        test_no_tracked_file_holds_a_key
        test_a_package_includes_every_tracked_file_below_the_programs_folders
        test_a_start_without_a_key_prints_the_command_that_issues_one
        test_a_version_is_released_once_from_a_clean_commit_with_todays_changelog
        test_a_release_runs_all_in_order_and_tags_only_what_passed
        test_a_message_is_sent_only_under_a_trusted_certificate_for_its_name
    """,
    WINE: """
        test_pieces_that_are_larger_than_one_sending_come_in_their_order
        test_a_client_stands_still_only_while_it_has_bytes_to_acknowledge
        test_where_all_together_keep_too_much_the_readers_that_take_least_are_cut_off
        test_unread_last_answers_count_too
        test_a_reader_that_acknowledges_nothing_for_long_is_cut_off_and_a_slow_one_is_not
    """,
    CLOCK: """
        test_the_log_of_a_service_goes_to_standard_error_as_text
        test_the_patterns_are_found_and_a_slow_one_is_not_overlooked
        test_slow_chunks_take_nothing_from_the_time_of_answers
    """,
}
# By name, with a case in brackets where it is not all of them; blanks in its name are hyphens here.
NOT_ON_WINDOWS = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}


def reason_to_skip(item: object) -> str | None:
    """Return why a test can't run on this system; None where it can."""
    if sys.platform != "win32":
        return None
    name = getattr(item, "name", "").replace(" ", "-")
    return NOT_ON_WINDOWS.get(name) or NOT_ON_WINDOWS.get(name.partition("[")[0])

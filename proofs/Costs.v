(* Scales are whole numbers, rounded up; the cost of what comes out, in fractions, is within the budget. As in `_scales`
   and `calibrate_on` of mechanisms/sparse_vector.py, and in mechanisms/nearest.py and mechanisms/private_summary.py. *)
From Coq Require Import ZArith QArith Qround List Lia Lqa.
Open Scope Q_scope.

(* What one threshold draw and so many accepts cost, and many such runs. *)
Definition run_cost (move first second : Z) (accepts : Z) : Q :=
  inject_Z move / inject_Z first + inject_Z (2 * accepts * move) / inject_Z second.
Definition resampled_cost (move first second : Z) (runs : Z) : Q := inject_Z runs * run_cost move first second 1.
Definition vector_cost (move scale : Z) : Q := inject_Z move / inject_Z scale.

(* The scales: the paper's split, and one in which `ratio` times the threshold's share goes to the distances. *)
Definition paper_scales (budget : Q) (accepts move : Z) : Z * Z :=
  let scale := Qceiling (inject_Z ((accepts + 1) * move) / budget) in (scale, (2 * scale)%Z).
Definition split_scales (ratio budget : Q) (accepts move : Z) : Z * Z :=
  let first := Qceiling (inject_Z move * (1 + ratio) / budget) in
  (first, Qceiling (inject_Z (2 * accepts * move) / (budget - inject_Z move / inject_Z first))).
Definition vector_scale (budget : Q) (move : Z) : Z := Qceiling (inject_Z move / budget).

Lemma ceiling_positive : forall x, 0 < x -> (0 < Qceiling x)%Z.
Proof. intros x positive. rewrite Zlt_Qlt. change (inject_Z 0) with 0. assert (up := Qle_ceiling x). lra. Qed.

(* The step of every proof here: a scale that was rounded up costs no more than was asked. *)
Lemma rounded_up : forall a budget, 0 < a -> 0 < budget -> a / inject_Z (Qceiling (a / budget)) <= budget.
Proof.
  intros a budget some positive.
  assert (quotient : 0 < a / budget) by (unfold Qdiv; apply Qmult_lt_0_compat; [assumption|now apply Qinv_lt_0_compat]).
  assert (up := Qle_ceiling (a / budget)).
  apply Qle_shift_div_r; [lra|].
  assert (whole : a == budget * (a / budget)) by (field; lra). rewrite whole at 1.
  rewrite !(Qmult_comm budget). apply Qmult_le_compat_r; lra.
Qed.

Lemma inject_positive : forall k, (0 < k)%Z -> 0 < inject_Z k.
Proof. intros k positive. change 0 with (inject_Z 0). now rewrite <- Zlt_Qlt. Qed.

Theorem vector_within_budget : forall budget move, 0 < budget -> (0 < move)%Z ->
  vector_cost move (vector_scale budget move) <= budget.
Proof. intros. unfold vector_cost, vector_scale. apply rounded_up; [now apply inject_positive|assumption]. Qed.

Theorem nearest_within_budget : forall budget accepts move, 0 < budget -> (0 < accepts)%Z -> (0 < move)%Z ->
  vector_cost (2 * accepts * move) (vector_scale budget (2 * accepts * move)) <= budget.
Proof. intros. apply vector_within_budget; [assumption|lia]. Qed.

Theorem paper_within_budget : forall budget accepts move, 0 < budget -> (0 < accepts)%Z -> (0 < move)%Z ->
  let (first, second) := paper_scales budget accepts move in run_cost move first second accepts <= budget.
Proof.
  intros budget accepts move positive some moved. unfold paper_scales, run_cost.
  assert (all : 0 < inject_Z ((accepts + 1) * move)) by (apply inject_positive; lia).
  assert (fits := rounded_up _ _ all positive).
  set (scale := Qceiling (inject_Z ((accepts + 1) * move) / budget)) in *.
  assert (0 < scale)%Z.
  { apply ceiling_positive. unfold Qdiv. apply Qmult_lt_0_compat; [assumption|now apply Qinv_lt_0_compat]. }
  assert (0 < inject_Z scale) by now apply inject_positive.
  revert fits. rewrite !inject_Z_mult, !inject_Z_plus. change (inject_Z 2) with 2. change (inject_Z 1) with 1.
  intros fits.
  setoid_replace (inject_Z move / inject_Z scale + 2 * inject_Z accepts * inject_Z move / (2 * inject_Z scale))
    with ((inject_Z accepts + 1) * inject_Z move / inject_Z scale) by (field; lra).
  exact fits.
Qed.

Theorem split_within_budget : forall ratio budget accepts move,
  0 < ratio -> 0 < budget -> (0 < accepts)%Z -> (0 < move)%Z ->
  let (first, second) := split_scales ratio budget accepts move in run_cost move first second accepts <= budget.
Proof.
  intros ratio budget accepts move share positive some moved. unfold split_scales, run_cost.
  assert (move' := inject_positive move moved).
  assert (more : 0 < inject_Z move * (1 + ratio)) by (apply Qmult_lt_0_compat; lra).
  assert (fits := rounded_up _ _ more positive).
  set (first := Qceiling (inject_Z move * (1 + ratio) / budget)) in *.
  assert (0 < first)%Z.
  { apply ceiling_positive. unfold Qdiv. apply Qmult_lt_0_compat; [assumption|now apply Qinv_lt_0_compat]. }
  assert (first' : 0 < inject_Z first) by now apply inject_positive.
  assert (one : 0 < inject_Z move / inject_Z first)
    by (unfold Qdiv; apply Qmult_lt_0_compat; [assumption|now apply Qinv_lt_0_compat]).
  assert (left : 0 < budget - inject_Z move / inject_Z first).
  { revert fits. setoid_replace (inject_Z move * (1 + ratio) / inject_Z first)
      with (inject_Z move / inject_Z first + ratio * (inject_Z move / inject_Z first)) by (field; lra).
    assert (0 < ratio * (inject_Z move / inject_Z first)) by now apply Qmult_lt_0_compat. intros. lra. }
  assert (all : 0 < inject_Z (2 * accepts * move)) by (apply inject_positive; nia).
  assert (rest := rounded_up _ _ all left). lra.
Qed.

(* A new threshold after each accept: each run has its share of the budget. *)
Theorem resampled_within_budget : forall budget runs move first second, 0 < budget -> (0 < runs)%Z ->
  run_cost move first second 1 <= budget / inject_Z runs -> resampled_cost move first second runs <= budget.
Proof.
  intros budget runs move first second positive some each. unfold resampled_cost.
  assert (runs' := inject_positive runs some).
  assert (whole : budget == inject_Z runs * (budget / inject_Z runs)) by (field; lra). rewrite whole.
  rewrite !(Qmult_comm (inject_Z runs)). apply Qmult_le_compat_r; [exact each|lra].
Qed.

(* Costs of runs one after the other are added up without rounding, in any order. *)
Fixpoint total (costs : list Q) : Q := match costs with nil => 0 | cons x rest => x + total rest end.
Theorem total_of_pieces : forall first second, total (first ++ second) == total first + total second.
Proof. induction first as [|x first IH]; intros second; cbn [app total]; [lra|]. rewrite IH. lra. Qed.

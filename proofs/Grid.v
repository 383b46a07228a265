(* The public grid: how far apart whole numbers of steps are, given how far apart the numbers were. Computed numbers are
   within eta of the true ones, which neighbours move by at most Delta; both are divided by the step and rounded down.
   Scalars: mechanisms/grid.py. Vectors: mechanisms/private_summary.py. *)
From Coq Require Import ZArith QArith Qabs Qround List Lia Lqa.
From Abcdp Require Import Lists.
Import ListNotations.
Open Scope Q_scope.

Definition quantise (step x : Q) : Z := Qfloor (x / step).

(* Saturation, as np.clip does it. *)
Definition saturate (low high k : Z) : Z := Z.min (Z.max k low) high.

Lemma floor_above : forall x, x < inject_Z (Qfloor x) + 1.
Proof. intros. rewrite <- (inject_Z_plus _ 1). apply Qlt_floor. Qed.

Lemma floor_move : forall x y d, Qabs (x - y) <= d -> (Z.abs (Qfloor x - Qfloor y) <= Qceiling d)%Z.
Proof.
  intros x y d moved. apply Qabs_Qle_condition in moved.
  assert (up := Qle_ceiling d).
  assert (low_x := Qfloor_le x). assert (low_y := Qfloor_le y).
  assert (x_high := floor_above x). assert (y_high := floor_above y).
  assert (one : (Qfloor x < Qfloor y + Qceiling d + 1)%Z).
  { rewrite Zlt_Qlt, !inject_Z_plus. change (inject_Z 1) with 1. lra. }
  assert (two : (Qfloor y < Qfloor x + Qceiling d + 1)%Z).
  { rewrite Zlt_Qlt, !inject_Z_plus. change (inject_Z 1) with 1. lra. }
  lia.
Qed.

Lemma computed_move : forall eta Delta x y true_x true_y,
  Qabs (x - true_x) <= eta -> Qabs (y - true_y) <= eta -> Qabs (true_x - true_y) <= Delta ->
  Qabs (x - y) <= Delta + 2 * eta.
Proof.
  intros eta Delta x y true_x true_y near_x near_y moved.
  apply Qabs_Qle_condition in near_x, near_y, moved. apply Qabs_Qle_condition. lra.
Qed.

Lemma in_steps : forall step x y d, 0 < step -> Qabs (x - y) <= d -> Qabs (x / step - y / step) <= d / step.
Proof.
  intros step x y d positive moved.
  setoid_replace (x / step - y / step) with ((x - y) * / step) by (field; lra).
  assert (inverse : 0 < / step) by (now apply Qinv_lt_0_compat).
  rewrite Qabs_Qmult, (Qabs_pos (/ step)) by lra. apply Qmult_le_compat_r; lra.
Qed.

Theorem saturate_move : forall low high a b, (Z.abs (saturate low high a - saturate low high b) <= Z.abs (a - b))%Z.
Proof. unfold saturate. intros. lia. Qed.

(* One number: ceil((Delta + 2 eta) / g). *)
Definition scalar_charge (Delta eta step : Q) : Z := Qceiling ((Delta + 2 * eta) / step).

Theorem scalar_rule : forall step eta Delta x y true_x true_y, 0 < step ->
  Qabs (x - true_x) <= eta -> Qabs (y - true_y) <= eta -> Qabs (true_x - true_y) <= Delta ->
  (Z.abs (quantise step x - quantise step y) <= scalar_charge Delta eta step)%Z.
Proof.
  intros. unfold quantise, scalar_charge. apply floor_move, in_steps; [assumption|]. eapply computed_move; eassumption.
Qed.

(* A distance on its grid, saturated: what the sparse vector and the nearest draws charge. *)
Theorem distance_rule : forall step eta Delta low high x y true_x true_y, 0 < step ->
  Qabs (x - true_x) <= eta -> Qabs (y - true_y) <= eta -> Qabs (true_x - true_y) <= Delta ->
  (Z.abs (saturate low high (quantise step x) - saturate low high (quantise step y))
   <= scalar_charge Delta eta step)%Z.
Proof.
  intros. eapply Z.le_trans; [apply saturate_move|]. eapply scalar_rule; eassumption.
Qed.

(* Vectors: the sizes of moves, in L1. *)
Fixpoint moves (first second : list Q) : Q :=
  match first, second with
  | x :: first', y :: second' => Qabs (x - y) + moves first' second'
  | _, _ => 0
  end.
Definition within (eta : Q) : list Q -> list Q -> Prop := Forall2 (fun x y => Qabs (x - y) <= eta).
Definition count (numbers : list Q) : Q := inject_Z (Z.of_nat (length numbers)).

Lemma count_cons : forall x numbers, count (x :: numbers) == 1 + count numbers.
Proof.
  intros. unfold count. cbn [length]. rewrite Nat2Z.inj_succ. unfold Z.succ. rewrite inject_Z_plus.
  change (inject_Z 1) with 1. lra.
Qed.

Lemma one_floor : forall x y, inject_Z (Z.abs (Qfloor x - Qfloor y)) < Qabs (x - y) + 1.
Proof.
  intros. assert (low_x := Qfloor_le x). assert (low_y := Qfloor_le y).
  assert (x_high := floor_above x). assert (y_high := floor_above y).
  assert (here := Qle_Qabs (x - y)). assert (there := Qle_Qabs (- (x - y))). rewrite Qabs_opp in there.
  destruct (Z.abs_spec (Qfloor x - Qfloor y)) as [[_ ->]|[_ ->]];
    rewrite ?inject_Z_opp; unfold Z.sub; rewrite inject_Z_plus, inject_Z_opp; lra.
Qed.

Lemma floors_move : forall first second, length first = length second -> first <> [] ->
  inject_Z (size (minus (map Qfloor first) (map Qfloor second))) < moves first second + count first.
Proof.
  unfold size, minus. induction first as [|x first IH]; destruct second as [|y second]; intros same some;
    try discriminate; [congruence|]. cbn [map zip sum moves]. rewrite inject_Z_plus, count_cons.
  assert (head := one_floor x y). destruct first as [|x' first].
  - destruct second; [|discriminate]. cbn [map zip sum moves].
    change (inject_Z 0) with 0. change (count []) with 0. lra.
  - assert (tail := IH second ltac:(simpl in *; lia) ltac:(discriminate)). lra.
Qed.

Lemma below_ceiling : forall k x, inject_Z k < x -> (k <= Qceiling x - 1)%Z.
Proof.
  intros k x below. assert (up := Qle_ceiling x).
  assert (inject_Z k < inject_Z (Qceiling x)) as less by lra. rewrite <- Zlt_Qlt in less. lia.
Qed.

(* A vector rounded down entry by entry: every entry may cross one line more, less one in all. *)
Theorem floors_rule : forall first second d, length first = length second -> first <> [] -> moves first second <= d ->
  (size (minus (map Qfloor first) (map Qfloor second)) <= Qceiling (d + count first) - 1)%Z.
Proof.
  intros. apply below_ceiling. assert (less := floors_move first second H H0). lra.
Qed.

Lemma computed_moves : forall eta first second true_first true_second,
  within eta first true_first -> within eta second true_second -> length first = length second ->
  moves first second <= moves true_first true_second + 2 * count first * eta.
Proof.
  intros eta first second true_first true_second near. revert second true_second.
  induction near as [|x tx first true_first close near IH]; intros second true_second near' same;
    destruct near' as [|y ty second true_second close' near']; try discriminate.
  cbn [moves]. rewrite count_cons. assert (rest := IH second true_second near' ltac:(simpl in same; lia)).
  assert (head := computed_move eta (Qabs (tx - ty)) x y tx ty close close' (Qle_refl _)). lra.
Qed.

Lemma moves_in_steps : forall step first second, 0 < step ->
  moves (map (fun x => x / step) first) (map (fun x => x / step) second) <= moves first second / step.
Proof.
  intros step first second positive. revert second. induction first as [|x first IH]; destruct second as [|y second];
    cbn [map moves]; try (unfold Qdiv; rewrite Qmult_0_l; apply Qle_refl).
  assert (head := in_steps step x y _ positive (Qle_refl _)). specialize (IH second).
  setoid_replace ((Qabs (x - y) + moves first second) / step)
    with (Qabs (x - y) / step + moves first second / step) by (field; lra). lra.
Qed.

(* The rule for vectors in L1: ceil((Delta1 + 2 D eta) / g + D) - 1. *)
Definition vector_charge (Delta eta step width : Q) : Z := (Qceiling ((Delta + 2 * width * eta) / step + width) - 1)%Z.

Theorem vector_rule : forall step eta Delta first second true_first true_second, 0 < step ->
  within eta first true_first -> within eta second true_second -> length first = length second -> first <> [] ->
  moves true_first true_second <= Delta ->
  (size (minus (map (quantise step) first) (map (quantise step) second))
   <= vector_charge Delta eta step (count first))%Z.
Proof.
  intros step eta Delta first second true_first true_second positive near near' same some moved.
  unfold quantise, vector_charge. rewrite <- !(map_map (fun x => x / step) Qfloor).
  replace (count first) with (count (map (fun x => x / step) first)) by (unfold count; now rewrite map_length).
  apply floors_rule; [now rewrite !map_length|now destruct first|].
  eapply Qle_trans; [now apply moves_in_steps|]. unfold count. rewrite map_length. fold (count first).
  apply Qmult_le_compat_r; [|apply Qlt_le_weak, Qinv_lt_0_compat; assumption].
  assert (all := computed_moves eta first second true_first true_second near near' same). lra.
Qed.

(* The largest entry, each on a grid of its own: the scalar rule holds for each, hence for the largest. *)
Theorem box_rule : forall K first second,
  Forall2 (fun a b => (Z.abs (a - b) <= K)%Z) first second -> (0 <= K)%Z -> (largest (minus first second) <= K)%Z.
Proof. unfold minus. intros K first second near positive. induction near; cbn [zip largest]; lia. Qed.

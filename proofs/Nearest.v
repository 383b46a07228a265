(* The nearest draws with one-sided noise, as mechanisms/nearest.py chooses them: the `most` smallest of rho - E, ties
   to the earlier row. With 2D more noise on each winner the same set wins on the neighbour, at a cost of 2cD / s. *)
From Coq Require Import ZArith QArith List Bool Lia Permutation.
From Abcdp Require Import Lists.
Import ListNotations.
Open Scope Z_scope.

Definition value (rhos noise : list Z) (i : nat) : Z := nth i rhos 0 - nth i noise 0.

(* Row i comes before row j. *)
Definition beats (v : nat -> Z) (i j : nat) : bool := (v i <? v j) || ((v i =? v j) && (i <? j)%nat).

(* The first of some rows, one candidate being known. *)
Fixpoint best (v : nat -> Z) (candidate : nat) (rows : list nat) : nat :=
  match rows with [] => candidate | i :: rest => best v (if beats v i candidate then i else candidate) rest end.

(* Take the first one `most` times; `rows` are the draws whose simulation worked. *)
Fixpoint nearest (most : nat) (v : nat -> Z) (rows : list nat) : list nat :=
  match most, rows with
  | S more, i :: rest =>
      let winner := best v i rest in
      winner :: nearest more v (remove Nat.eq_dec winner rows)
  | _, _ => []
  end.

Definition member (winners : list nat) (i : nat) : bool := existsb (Nat.eqb i) winners.

(* Winners get 2D more noise, others none. *)
Definition raise_winners (D : Z) (winners : list nat) (noise : list Z) : list Z :=
  map (fun i => nth i noise 0 + if member winners i then 2 * D else 0) (seq 0 (length noise)).

Definition neighbours (D : Z) : list Z -> list Z -> Prop := Forall2 (fun a b => Z.abs (a - b) <= D).

Lemma beats_total : forall v i j, i <> j -> beats v i j = false -> beats v j i = true.
Proof.
  unfold beats. intros v i j different lost.
  apply orb_false_iff in lost as [not_less not_tied]. apply orb_true_iff.
  apply Z.ltb_ge in not_less. destruct (Z.eq_dec (v i) (v j)) as [tied|other].
  - right. rewrite tied, Z.eqb_refl in *. simpl in *. apply Nat.ltb_ge in not_tied. apply Nat.ltb_lt. lia.
  - left. apply Z.ltb_lt. lia.
Qed.

Lemma beats_spec : forall v i j, beats v i j = true <-> v i < v j \/ (v i = v j /\ (i < j)%nat).
Proof.
  unfold beats. intros. rewrite orb_true_iff, andb_true_iff, Z.ltb_lt, Z.eqb_eq, Nat.ltb_lt. reflexivity.
Qed.

Lemma beats_never_both : forall v i j, beats v i j = true -> beats v j i = true -> False.
Proof. intros v i j. rewrite !beats_spec. lia. Qed.

Lemma beats_transitive : forall v i j k, beats v i j = true -> beats v j k = true -> beats v i k = true.
Proof. intros v i j k. rewrite !beats_spec. lia. Qed.

Lemma best_among : forall v rows candidate, In (best v candidate rows) (candidate :: rows).
Proof.
  induction rows as [|i rows IH]; intros candidate; [now left|]. cbn [best].
  destruct (beats v i candidate); [destruct (IH i)|destruct (IH candidate)]; simpl in *; intuition.
Qed.

Lemma best_beats : forall v rows candidate j,
  In j (candidate :: rows) -> j <> best v candidate rows -> beats v (best v candidate rows) j = true.
Proof.
  induction rows as [|i rows IH]; intros candidate j there other.
  - destruct there as [->|[]]. cbn in other. congruence.
  - cbn [best] in *. destruct (beats v i candidate) eqn:won.
    + destruct (Nat.eq_dec j candidate) as [->|more].
      * destruct (Nat.eq_dec i (best v i rows)) as [<-|higher]; [assumption|].
        eapply beats_transitive; [apply IH; [now left|exact higher]|exact won].
      * apply IH; [|exact other]. destruct there as [->|[->|there]]; simpl; intuition.
    + destruct (Nat.eq_dec j i) as [->|more].
      * destruct (Nat.eq_dec i candidate) as [->|distinct]; [apply IH; [now left|exact other]|].
        assert (lost := beats_total v i candidate distinct won).
        destruct (Nat.eq_dec candidate (best v candidate rows)) as [<-|higher]; [assumption|].
        eapply beats_transitive; [apply IH; [now left|exact higher]|exact lost].
      * apply IH; [|exact other]. destruct there as [->|[->|there]]; simpl; intuition.
Qed.

Lemma remove_keeps : forall x y (rows : list nat), In y rows -> y <> x -> In y (remove Nat.eq_dec x rows).
Proof. intros. apply in_in_remove; auto. Qed.

Lemma remove_once : forall x (rows : list nat), NoDup rows -> In x rows ->
  S (length (remove Nat.eq_dec x rows)) = length rows.
Proof.
  induction rows as [|a rows IH]; intros once there; [destruct there|]. inversion once; subst. cbn [remove].
  destruct (Nat.eq_dec x a) as [->|other].
  - now rewrite notin_remove.
  - destruct there as [->|there]; [congruence|]. simpl. now rewrite IH.
Qed.

Lemma remove_NoDup : forall x (rows : list nat), NoDup rows -> NoDup (remove Nat.eq_dec x rows).
Proof.
  induction rows as [|a rows IH]; intros once; [constructor|]. inversion once; subst. cbn [remove].
  destruct (Nat.eq_dec x a); [auto|]. constructor; [|auto].
  intros there. apply in_remove in there. tauto.
Qed.

(* What the winners are: some of the rows, each once, as many as asked for, and each before all others. *)
Definition selects (most : nat) (v : nat -> Z) (rows winners : list nat) : Prop :=
  NoDup winners /\ incl winners rows /\ length winners = Nat.min most (length rows)
  /\ forall i j, In i winners -> In j rows -> ~ In j winners -> beats v i j = true.

Theorem nearest_selects : forall most v rows, NoDup rows -> selects most v rows (nearest most v rows).
Proof.
  induction most as [|most IH]; intros v rows once; [repeat split; simpl; try constructor; easy|].
  destruct rows as [|i rest]; [repeat split; simpl; try constructor; easy|].
  cbn [nearest]. set (winner := best v i rest). set (left := remove Nat.eq_dec winner (i :: rest)).
  assert (among : In winner (i :: rest)) by apply best_among.
  destruct (IH v left (remove_NoDup _ _ once)) as (each & within & many & before).
  assert (fewer := remove_once winner (i :: rest) once among). fold left in fewer.
  split; [|split; [|split]].
  - constructor; [|exact each]. intros there. apply within, in_remove in there. tauto.
  - intros j [<-|there]; [exact among|]. apply within, in_remove in there. tauto.
  - rewrite <- fewer. cbn [length Nat.min]. now rewrite many.
  - intros k j [<-|won] there lost.
    + apply best_beats; [exact there|]. intros same. apply lost. left. symmetry. exact same.
    + apply before; [exact won| |intros twice; apply lost; now right].
      apply remove_keeps; [exact there|]. intros same. apply lost. now left.
Qed.

(* There is one such set, whatever program finds it. *)
Theorem selects_unique : forall most v rows first second,
  selects most v rows first -> selects most v rows second -> incl first second.
Proof.
  intros most v rows first second (each & within & many & before) (each' & within' & many' & before') i won.
  destruct (in_dec Nat.eq_dec i second) as [there|lost]; [exact there|]. exfalso. apply lost.
  assert (smaller : incl second first).
  { intros j won'. destruct (in_dec Nat.eq_dec j first) as [both|other]; [exact both|]. exfalso.
    apply (beats_never_both v i j); [apply before; auto|apply before'; auto]. }
  refine (NoDup_length_incl each' _ smaller i won). lia.
Qed.

Lemma raised_value : forall D winners noise i, (i < length noise)%nat ->
  nth i (raise_winners D winners noise) 0 = nth i noise 0 + if member winners i then 2 * D else 0.
Proof.
  intros. unfold raise_winners.
  rewrite (nth_indep _ 0 (nth (length noise) noise 0 + if member winners (length noise) then 2 * D else 0))
    by (rewrite map_length, seq_length; assumption).
  set (f := fun k => nth k noise 0 + if member winners k then 2 * D else 0).
  change (nth i (map f (seq 0 (length noise))) (f (length noise)) = f i). rewrite map_nth, seq_nth by assumption.
  reflexivity.
Qed.

Lemma member_In : forall winners i, member winners i = true <-> In i winners.
Proof.
  unfold member. intros. rewrite existsb_exists. split.
  - intros (j & there & same). apply Nat.eqb_eq in same. now subst.
  - intros there. exists i. split; [exact there|apply Nat.eqb_refl].
Qed.

Lemma neighbours_nth : forall D rhos rhos', 0 <= D -> neighbours D rhos rhos' ->
  forall i, Z.abs (nth i rhos 0 - nth i rhos' 0) <= D.
Proof. intros D rhos rhos' positive near. induction near; destruct i; simpl; try lia; auto. Qed.

Theorem nearest_aligned : forall D most rows rhos rhos' noise,
  0 <= D -> neighbours D rhos rhos' -> NoDup rows -> (forall i, In i rows -> (i < length noise)%nat) ->
  let winners := nearest most (value rhos noise) rows in
  let noise' := raise_winners D winners noise in
  forall i, In i (nearest most (value rhos' noise') rows) <-> In i winners.
Proof.
  intros D most rows rhos rhos' noise positive near once inside winners noise' i.
  assert (won := nearest_selects most (value rhos noise) rows once). fold winners in won.
  assert (won' : selects most (value rhos' noise') rows winners).
  { destruct won as (each & within & many & before). repeat split; auto.
    intros k j is_in there is_out. specialize (before k j is_in there is_out).
    assert (moved_k := neighbours_nth D rhos rhos' positive near k).
    assert (moved_j := neighbours_nth D rhos rhos' positive near j).
    assert (noise_k := raised_value D winners noise k (inside k (within k is_in))).
    assert (noise_j := raised_value D winners noise j (inside j there)).
    apply member_In in is_in. rewrite is_in in noise_k.
    destruct (member winners j) eqn:mark; [apply member_In in mark; contradiction|].
    apply beats_spec in before. apply beats_spec. unfold value in *. fold noise' in noise_k, noise_j.
    rewrite noise_k, noise_j. lia. }
  assert (found := nearest_selects most (value rhos' noise') rows once).
  split.
  - exact (selects_unique _ _ _ _ _ found won' i).
  - exact (selects_unique _ _ _ _ _ won' found i).
Qed.

(* Given the winners it is a translation, and noise that was possible, not below 0, stays so. *)
Theorem raise_injective : forall D winners first second,
  length first = length second -> raise_winners D winners first = raise_winners D winners second -> first = second.
Proof.
  intros D winners first second same equal. apply (nth_ext _ _ 0 0 same). intros i inside.
  assert (a := raised_value D winners first i inside). rewrite same in inside.
  assert (b := raised_value D winners second i inside). rewrite equal in a. lia.
Qed.

Theorem raise_one_sided : forall D winners noise, 0 <= D ->
  Forall (fun e => 0 <= e) noise -> Forall (fun e => 0 <= e) (raise_winners D winners noise).
Proof.
  intros D winners noise positive above. apply Forall_forall. intros e there. unfold raise_winners in there.
  apply in_map_iff in there as (i & <- & place). apply in_seq in place.
  rewrite Forall_forall in above. assert (0 <= nth i noise 0) by (apply above, nth_In; lia).
  destruct (member winners i); lia.
Qed.

Lemma sum_of_rows : forall numbers, sum numbers = sum (map (fun i => nth i numbers 0) (seq 0 (length numbers))).
Proof.
  induction numbers as [|x numbers IH]; [reflexivity|]. cbn [length seq map sum nth]. rewrite IH at 1.
  now rewrite <- seq_shift, map_map.
Qed.

Lemma sum_raised : forall (noise : list Z) D winners rows,
  sum (map (fun i => nth i noise 0 + if member winners i then 2 * D else 0) rows)
  = sum (map (fun i => nth i noise 0) rows) + 2 * D * Z.of_nat (length (filter (member winners) rows)).
Proof.
  induction rows as [|i rows IH]; [simpl; lia|]. cbn [map sum filter]. rewrite IH.
  destruct (member winners i); cbn [length]; rewrite ?Nat2Z.inj_succ; nia.
Qed.

Theorem raise_cost : forall D winners noise, 0 <= D ->
  sum (raise_winners D winners noise) - sum noise <= 2 * Z.of_nat (length winners) * D.
Proof.
  intros D winners noise positive. unfold raise_winners. rewrite sum_raised, <- sum_of_rows.
  assert (few : (length (filter (member winners) (seq 0 (length noise))) <= length winners)%nat).
  { apply NoDup_incl_length; [apply NoDup_filter, seq_NoDup|].
    intros i there. apply filter_In in there as [_ there]. now apply member_In. }
  nia.
Qed.

(* What is claimed: the same set, at most 2cD / s. *)
Theorem nearest_private : forall D most rows rhos rhos' noise s,
  0 <= D -> neighbours D rhos rhos' -> NoDup rows -> (forall i, In i rows -> (i < length noise)%nat) ->
  let winners := nearest most (value rhos noise) rows in
  let noise' := raise_winners D winners noise in
  (forall i, In i (nearest most (value rhos' noise') rows) <-> In i winners)
  /\ (inject_Z (sum noise' - sum noise) / inject_Z (Zpos s)
      <= inject_Z (2 * Z.of_nat most * D) / inject_Z (Zpos s))%Q.
Proof.
  intros D most rows rhos rhos' noise s positive near once inside winners noise'. split.
  - now apply nearest_aligned.
  - apply Qmult_le_compat_r; [|apply Qinv_le_0_compat; rewrite <- (Zle_Qle 0); lia].
    rewrite <- Zle_Qle. assert (cost := raise_cost D winners noise positive).
    destruct (nearest_selects most (value rhos noise) rows once) as (_ & _ & many & _). fold winners in many.
    fold noise' in cost. assert (Z.of_nat (length winners) <= Z.of_nat most) by lia. nia.
Qed.

(* Sparse vector on whole numbers, as _kernels/plain.py and _kernels/compiled.py scan: whole runs, any length, any
   number of accepts. For every run and every neighbour there is a shift of the noise that gives the same answer. Given
   the answer it is a translation, hence injective; what it costs is what mechanisms/sparse_vector.py charges. *)
From Coq Require Import ZArith QArith Qabs List Bool Lia Lqa.
From Abcdp Require Import Lists.
Import ListNotations.
Open Scope Z_scope.

(* A draw of the bank: whether its simulation worked, which is public, and its distance in steps. *)
Definition row := (bool * Z)%type.

(* What a run says of each draw: nothing, or that it is accepted and how much its comparison left over. `level k` is
   the noisy threshold after k accepts; after `most` of them nothing is accepted any more. Ties are accepted. *)
Fixpoint run (level : nat -> Z) (most count : nat) (rows : list row) (noise : list Z) : list (option Z) :=
  match rows, noise with
  | (fine, rho) :: rows', nu :: noise' =>
      if (count <? most)%nat && fine && (rho + nu <=? level count)
      then Some (level count - (rho + nu)) :: run level most (S count) rows' noise'
      else None :: run level most count rows' noise'
  | _, _ => []
  end.

Definition is_accept (mark : option Z) : bool := match mark with Some _ => true | None => false end.
Definition accepted (out : list (option Z)) : list bool := map is_accept out.
Definition accepts (out : list (option Z)) : nat := length (filter is_accept out).

(* The thresholds: one draw for all accepts, or a new one after each. *)
Definition one_draw (tau m : Z) : nat -> Z := fun _ => tau + m.
Definition resampled (tau : Z) (ms : list Z) : nat -> Z := fun k => tau + nth k ms 0.

(* Neighbours move every distance by at most D steps, and no failed draw. *)
Definition neighbours (D : Z) : list row -> list row -> Prop :=
  Forall2 (fun a b => fst a = fst b /\ Z.abs (snd a - snd b) <= D).

(* The shifts: thresholds by -D; accepted noise by -2D, or with gaps by -D + rho - rho'; rejected noise not at all. *)
Definition shift_threshold (D m : Z) : Z := m - D.
Fixpoint shift (D : Z) (out : list (option Z)) (noise : list Z) : list Z :=
  match out, noise with
  | mark :: out', nu :: noise' => (if is_accept mark then nu - 2 * D else nu) :: shift D out' noise'
  | _, _ => noise
  end.
Fixpoint shift_gaps (D : Z) (out : list (option Z)) (rows rows' : list row) (noise : list Z) : list Z :=
  match out, rows, rows', noise with
  | mark :: out', a :: more, b :: more', nu :: noise' =>
      (if is_accept mark then nu - D + snd a - snd b else nu) :: shift_gaps D out' more more' noise'
  | _, _, _, _ => noise
  end.

(* Both laws fall with the size of the noise: exp(-(size of thresholds) / s1 - (size of noise) / s2), up to a constant.
   The loss of a shift is the logarithm of the quotient of the two probabilities. *)
Definition loss (s1 s2 : positive) (ms ms' noise noise' : list Z) : Q :=
  (inject_Z (size ms' - size ms) / inject_Z (Zpos s1) + inject_Z (size noise' - size noise) / inject_Z (Zpos s2))%Q.
Definition charge (thresholds most : nat) (D : Z) (s1 s2 : positive) : Q :=
  (inject_Z (Z.of_nat thresholds * D) / inject_Z (Zpos s1)
   + inject_Z (2 * Z.of_nat most * D) / inject_Z (Zpos s2))%Q.

(* One-sided noise is never above 0. *)
Definition one_sided : list Z -> Prop := Forall (fun nu => nu <= 0).

Section Runs.
Variables (D : Z) (level level' : nat -> Z) (most : nat).
Hypothesis lowered : forall k, (k < most)%nat -> level' k = level k - D.

Theorem run_aligned : forall rows rows' noise count,
  neighbours D rows rows' ->
  accepted (run level' most count rows' (shift D (run level most count rows noise) noise))
  = accepted (run level most count rows noise).
Proof.
  intros rows rows' noise count near. revert noise count.
  induction near as [|[fine rho] [fine' rho'] rows rows' [same moved] near IH]; intros noise count; [reflexivity|].
  simpl in same, moved. subst fine'.
  destruct noise as [|nu noise]; [reflexivity|]. cbn [run].
  destruct ((count <? most)%nat && fine) eqn:open; cbn [andb].
  - apply andb_prop in open as open'. destruct open' as [room _]. apply Nat.ltb_lt in room.
    destruct (rho + nu <=? level count) eqn:hit; cbn [shift is_accept run]; rewrite ?open; cbn [andb].
    + apply Z.leb_le in hit.
      assert (hit' : (rho' + (nu - 2 * D) <=? level' count) = true)
        by (apply Z.leb_le; rewrite lowered by assumption; lia).
      rewrite hit'. unfold accepted in *. cbn [map is_accept]. now rewrite IH.
    + apply Z.leb_gt in hit.
      assert (hit' : (rho' + nu <=? level' count) = false) by (apply Z.leb_gt; rewrite lowered by assumption; lia).
      rewrite hit'. unfold accepted in *. cbn [map is_accept]. now rewrite IH.
  - cbn [shift is_accept run]. rewrite ?open. cbn [andb]. unfold accepted in *. cbn [map is_accept]. now rewrite IH.
Qed.

Theorem run_aligned_gaps : forall rows rows' noise count,
  neighbours D rows rows' ->
  run level' most count rows' (shift_gaps D (run level most count rows noise) rows rows' noise)
  = run level most count rows noise.
Proof.
  intros rows rows' noise count near. revert noise count.
  induction near as [|[fine rho] [fine' rho'] rows rows' [same moved] near IH]; intros noise count; [reflexivity|].
  simpl in same, moved. subst fine'.
  destruct noise as [|nu noise]; [reflexivity|]. cbn [run].
  destruct ((count <? most)%nat && fine) eqn:open; cbn [andb].
  - apply andb_prop in open as open'. destruct open' as [room _]. apply Nat.ltb_lt in room.
    destruct (rho + nu <=? level count) eqn:hit; cbn [shift_gaps is_accept run snd]; rewrite ?open; cbn [andb].
    + apply Z.leb_le in hit.
      assert (hit' : (rho' + (nu - D + rho - rho') <=? level' count) = true)
        by (apply Z.leb_le; rewrite lowered by assumption; lia).
      rewrite hit', IH. do 2 f_equal. rewrite lowered by assumption. lia.
    + apply Z.leb_gt in hit.
      assert (hit' : (rho' + nu <=? level' count) = false) by (apply Z.leb_gt; rewrite lowered by assumption; lia).
      now rewrite hit', IH.
  - cbn [shift_gaps is_accept run snd]. rewrite ?open. cbn [andb]. now rewrite IH.
Qed.
End Runs.

(* The stop: never more than `most` accepts. *)
Theorem run_stops : forall level most rows noise count,
  (count <= most)%nat -> (accepts (run level most count rows noise) + count <= most)%nat.
Proof.
  unfold accepts. induction rows as [|[fine rho] rows IH]; intros noise count below; [simpl; lia|].
  destruct noise as [|nu noise]; [simpl; lia|]. cbn [run].
  destruct (count <? most)%nat eqn:left; cbn [andb];
    [|cbn [filter is_accept]; now apply IH].
  apply Nat.ltb_lt in left.
  destruct (fine && (rho + nu <=? level count)); cbn [filter is_accept length].
  - specialize (IH noise (S count) left). lia.
  - now apply IH.
Qed.

(* A bank that is read piece by piece, the count going on, gives the run over the whole. *)
Theorem run_in_pieces : forall level most first second noise noise' count,
  length noise = length first ->
  run level most count (first ++ second) (noise ++ noise')
  = run level most count first noise
    ++ run level most (count + accepts (run level most count first noise)) second noise'.
Proof.
  unfold accepts. induction first as [|[fine rho] first IH]; intros second noise noise' count same;
    destruct noise as [|nu noise]; simpl in same; try lia.
  - simpl. now rewrite Nat.add_0_r.
  - cbn [app run].
    destruct ((count <? most)%nat && fine && (rho + nu <=? level count)); cbn [filter is_accept length app];
      rewrite IH by lia; [now rewrite Nat.add_succ_comm|reflexivity].
Qed.

(* Given the answer the shift is a translation: no two noises become one. *)
Theorem shift_injective : forall D out first second,
  length first = length second -> shift D out first = shift D out second -> first = second.
Proof.
  induction out as [|mark out IH]; intros first second same equal; [exact equal|].
  destruct first as [|a first], second as [|b second]; simpl in *; try congruence; try lia.
  injection equal as head tail. f_equal; [destruct (is_accept mark); lia|]. apply IH; [lia|assumption].
Qed.

Theorem shift_gaps_injective : forall D out rows rows' first second,
  length first = length second ->
  shift_gaps D out rows rows' first = shift_gaps D out rows rows' second -> first = second.
Proof.
  induction out as [|mark out IH]; intros rows rows' first second same equal; [exact equal|].
  destruct rows as [|a rows]; [exact equal|]. destruct rows' as [|b rows']; [exact equal|].
  destruct first as [|x first], second as [|y second]; simpl in *; try congruence; try lia.
  injection equal as head tail. f_equal; [destruct (is_accept mark); lia|]. eapply IH; [lia|eassumption].
Qed.

Theorem thresholds_injective : forall D first second,
  map (shift_threshold D) first = map (shift_threshold D) second -> first = second.
Proof.
  unfold shift_threshold. induction first as [|a first IH]; destruct second as [|b second]; simpl; intros equal;
    try congruence. injection equal as head tail. f_equal; [lia|now apply IH].
Qed.

(* What the shifts cost, in steps. *)
Lemma nothing_lost : forall n D, 0 <= D -> 0 - 0 <= 2 * Z.of_nat n * D.
Proof. intros. nia. Qed.

Theorem shift_cost : forall D out noise, 0 <= D ->
  size (shift D out noise) - size noise <= 2 * Z.of_nat (accepts out) * D.
Proof.
  unfold size, accepts. induction out as [|mark out IH]; intros noise positive; [simpl; lia|].
  destruct noise as [|nu noise]; [now apply nothing_lost|]. cbn [shift filter map sum].
  specialize (IH noise positive).
  destruct (is_accept mark); cbn [length]; rewrite ?Nat2Z.inj_succ, ?Z.mul_succ_r, ?Z.mul_add_distr_r; lia.
Qed.

Theorem shift_gaps_cost : forall D rows rows', neighbours D rows rows' -> 0 <= D -> forall out noise,
  size (shift_gaps D out rows rows' noise) - size noise <= 2 * Z.of_nat (accepts out) * D.
Proof.
  unfold size, accepts. intros D rows rows' near positive.
  induction near as [|[fine rho] [fine' rho'] rows rows' [same moved] near IH]; intros out noise;
    (destruct out as [|mark out]; [simpl; lia|]); cbn [shift_gaps]; [rewrite Z.sub_diag; nia|].
  destruct noise as [|nu noise]; [now apply nothing_lost|]. cbn [filter map sum].
  specialize (IH out noise). simpl in moved.
  destruct (is_accept mark); cbn [length snd]; rewrite ?Nat2Z.inj_succ, ?Z.mul_succ_r, ?Z.mul_add_distr_r; lia.
Qed.

Theorem thresholds_cost : forall D ms, 0 <= D ->
  size (map (shift_threshold D) ms) - size ms <= Z.of_nat (length ms) * D.
Proof.
  unfold size, shift_threshold. intros D ms positive. induction ms as [|m ms IH]; [simpl; lia|].
  cbn [map sum length]. rewrite Nat2Z.inj_succ, Z.mul_succ_l. lia.
Qed.

(* One-sided noise stays possible. *)
Theorem shift_one_sided : forall D out noise, 0 <= D -> one_sided noise -> one_sided (shift D out noise).
Proof.
  unfold one_sided. induction out as [|mark out IH]; intros noise positive below; [exact below|].
  destruct noise as [|nu noise]; [constructor|]. inversion below; subst. cbn [shift].
  constructor; [destruct (is_accept mark); lia|now apply IH].
Qed.

Theorem shift_gaps_one_sided : forall D rows rows', neighbours D rows rows' -> forall out noise,
  one_sided noise -> one_sided (shift_gaps D out rows rows' noise).
Proof.
  unfold one_sided. intros D rows rows' near.
  induction near as [|[fine rho] [fine' rho'] rows rows' [same moved] near IH]; intros out noise below;
    (destruct out as [|mark out]; [exact below|]); [exact below|].
  destruct noise as [|nu noise]; [constructor|]. inversion below; subst. cbn [shift_gaps snd]. simpl in moved.
  constructor; [destruct (is_accept mark); lia|now apply IH].
Qed.

Theorem thresholds_one_sided : forall D ms, 0 <= D -> one_sided ms -> one_sided (map (shift_threshold D) ms).
Proof. unfold one_sided, shift_threshold. induction 2; simpl; constructor; auto; lia. Qed.

(* The loss of both shifts together is at most the charge. *)
Lemma loss_charged : forall s1 s2 ms ms' noise noise' thresholds most D,
  size ms' - size ms <= Z.of_nat thresholds * D -> size noise' - size noise <= 2 * Z.of_nat most * D ->
  (loss s1 s2 ms ms' noise noise' <= charge thresholds most D s1 s2)%Q.
Proof.
  intros. unfold loss, charge.
  apply Qplus_le_compat; apply Qmult_le_compat_r;
    try (rewrite <- Zle_Qle; assumption); apply Qinv_le_0_compat; rewrite <- (Zle_Qle 0); lia.
Qed.

(* What is claimed of one threshold draw, without and with gaps. *)
Theorem one_draw_private : forall D tau m s1 s2 most rows rows' noise,
  0 <= D -> neighbours D rows rows' ->
  let out := run (one_draw tau m) most 0 rows noise in
  let noise' := shift D out noise in
  accepted (run (one_draw tau (shift_threshold D m)) most 0 rows' noise') = accepted out
  /\ (loss s1 s2 [m] [shift_threshold D m] noise noise' <= charge 1 most D s1 s2)%Q.
Proof.
  intros. split.
  - apply run_aligned; [intros; unfold one_draw, shift_threshold; lia|assumption].
  - apply loss_charged; [apply (thresholds_cost D [m]); assumption|].
    pose proof (run_stops (one_draw tau m) most rows noise 0 ltac:(lia)).
    pose proof (shift_cost D out noise H). subst out noise'. nia.
Qed.

Theorem one_draw_gaps_private : forall D tau m s1 s2 most rows rows' noise,
  0 <= D -> neighbours D rows rows' ->
  let out := run (one_draw tau m) most 0 rows noise in
  let noise' := shift_gaps D out rows rows' noise in
  run (one_draw tau (shift_threshold D m)) most 0 rows' noise' = out
  /\ (loss s1 s2 [m] [shift_threshold D m] noise noise' <= charge 1 most D s1 s2)%Q.
Proof.
  intros. split.
  - apply run_aligned_gaps; [intros; unfold one_draw, shift_threshold; lia|assumption].
  - apply loss_charged; [apply (thresholds_cost D [m]); assumption|].
    pose proof (run_stops (one_draw tau m) most rows noise 0 ltac:(lia)).
    pose proof (shift_gaps_cost D rows rows' H0 H out noise). subst out noise'. nia.
Qed.

(* And of a new threshold after each accept: `most` of them are drawn. *)
Lemma resampled_lowered : forall D tau ms most, length ms = most -> forall k, (k < most)%nat ->
  resampled tau (map (shift_threshold D) ms) k = resampled tau ms k - D.
Proof.
  intros. unfold resampled. rewrite (nth_indep _ 0 (shift_threshold D 0)) by (rewrite map_length; lia).
  rewrite map_nth. unfold shift_threshold. lia.
Qed.

Theorem resampled_private : forall D tau ms s1 s2 most rows rows' noise,
  0 <= D -> length ms = most -> neighbours D rows rows' ->
  let out := run (resampled tau ms) most 0 rows noise in
  let noise' := shift D out noise in
  let ms' := map (shift_threshold D) ms in
  accepted (run (resampled tau ms') most 0 rows' noise') = accepted out
  /\ (loss s1 s2 ms ms' noise noise' <= charge most most D s1 s2)%Q.
Proof.
  intros. split.
  - apply run_aligned; [now apply resampled_lowered|assumption].
  - apply loss_charged; [subst ms' most; apply thresholds_cost; assumption|].
    pose proof (run_stops (resampled tau ms) most rows noise 0 ltac:(lia)).
    pose proof (shift_cost D out noise H). subst out noise'. nia.
Qed.

Theorem resampled_gaps_private : forall D tau ms s1 s2 most rows rows' noise,
  0 <= D -> length ms = most -> neighbours D rows rows' ->
  let out := run (resampled tau ms) most 0 rows noise in
  let noise' := shift_gaps D out rows rows' noise in
  let ms' := map (shift_threshold D) ms in
  run (resampled tau ms') most 0 rows' noise' = out
  /\ (loss s1 s2 ms ms' noise noise' <= charge most most D s1 s2)%Q.
Proof.
  intros. split.
  - apply run_aligned_gaps; [now apply resampled_lowered|assumption].
  - apply loss_charged; [subst ms' most; apply thresholds_cost; assumption|].
    pose proof (run_stops (resampled tau ms) most rows noise 0 ltac:(lia)).
    pose proof (shift_gaps_cost D rows rows' H1 H out noise). subst out noise'. nia.
Qed.
